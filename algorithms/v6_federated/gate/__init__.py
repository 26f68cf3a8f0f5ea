"""The only way in and out of a hospital: read a request, check it, compute what it asks, release an answer.

To be read in this order: ``call``, ``under_masks``, ``questions``, ``own_results``, ``extraction``.
"""
