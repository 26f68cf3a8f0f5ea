"""Differential privacy: sums of which one row changes a proven amount, noise, what it costs, and the hospital's ledger.

To be read in this order: ``units``, ``bounded``, ``clipping``, ``gaussian``, ``plan``, ``accountant``, ``ledger``.
"""
