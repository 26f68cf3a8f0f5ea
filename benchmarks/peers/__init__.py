"""FedAvg by other packages, on the same rows: scripts that run in environments of their own (``make peers``).

Each script takes a folder with arrays of rows, a model's name and a number of rounds, and prints the seconds of each
round and the last accuracy as JSON. In all of them a round trains 10 of 100 clients (E = 1, B = 10) in two processes of
one thread each, and evaluates the new model on the test rows.
"""
