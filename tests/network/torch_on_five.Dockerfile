# A method with torch on vantage6 5, for tests alone: PyPI has no torch for processors and Python 3.13, which vantage6 5
# asks for. It runs on 3.11 too, and so takes the place of vantage6 4 in an image of 3.11.
ARG BASE
FROM ${BASE}
ARG VANTAGE6
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
RUN /usr/local/bin/python -m pip --python /packages/bin/python install --no-cache-dir --no-deps --ignore-requires-python \
    vantage6-algorithm-tools==${VANTAGE6} vantage6-common==${VANTAGE6} pyarrow==18.1.0
