"""Secure aggregation: central learns sums over blocks of hospitals, never a single hospital's answer.

This is an executable form of docs/secure-aggregation.md. These modules follow the page's sections, in this order:
``notation``, ``keys``, ``study``, ``agreement``, ``transcript``, ``keystreams``, ``encoding``, ``answered``. What a
function's answer is a sum of stands in ``summands``, what is exact in a sum in ``exact``, and how numbers become words
in ``summing``.
"""
