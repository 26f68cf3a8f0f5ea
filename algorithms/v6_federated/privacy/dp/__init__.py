"""Differential privacy: noise, what a job plans to ask, what that costs, and the hospital's ledger of it.

In this order: ``noise``, ``plan``, ``accountant``, ``ledger``.
"""
