# vantage6's algorithm store, for its own check of the methods' entries; for tests alone.
ARG BASE
FROM ${BASE}
ARG VANTAGE6
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
RUN pip install --no-cache-dir vantage6-algorithm-store==${VANTAGE6} vantage6-backend-common==${VANTAGE6} jsonschema==4.21.1
