"""Secure aggregation: central learns sums over blocks of hospitals, never a single hospital's answer.

This is an executable form of docs/secure-aggregation.md: the modules follow the page's sections, in this order:
``notation``, ``keys``, ``study``, ``agreement``, ``transcript``, ``masks``, ``encoding``, ``answered``.
"""
