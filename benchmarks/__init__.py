"""The documents' tables, reproduced: one module a document, one command a table."""
