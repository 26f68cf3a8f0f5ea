"""The numbers that a node sums over its rows besides gradient and Hessian, in the order in which they are sent."""

MEASURES = (
    "rows",  # with a weight above 0
    "weight",  # the sum of the weights
    "label",  # of weight times label
    "deviance",
    "pearson",  # Pearson's X^2
    "constant",  # of what the log-likelihood has besides the deviance
    "log_weight",  # of the logarithms of the weights above 0
    "null_gradient",  # of the model with an intercept alone
    "null_hessian",
    "null_deviance",
    "impossible",  # 1 if some row's mean is impossible under these coefficients, and the other sums are 0
)
