# The vantage6 server and node of the local network, from PyPI, for machines that cannot pull the official images.
# Python 3.10: the 4.15 server fails on later versions, and psutil 5.9.0, which the node pins, has no wheel for them.
# vantage6 5 needs Python 3.13; its packages are those of five/requirements.txt.
ARG PYTHON=python:3.10-slim-bookworm

FROM ${PYTHON} AS packages
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
COPY requirements.txt ./
# The file names every package: with their dependencies pip would ask for a hash of PyJWT[crypto], which has none.
RUN pip install --no-cache-dir --use-pep517 --prefix /install --no-deps --require-hashes -r requirements.txt

FROM ${PYTHON}
ARG VANTAGE6=4.15.2
LABEL org.opencontainers.image.title="vantage6 server and node of the local network" \
      org.opencontainers.image.version="${VANTAGE6}" \
      org.opencontainers.image.source="https://github.com/vantage6/vantage6" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=packages /install /usr/local
# Python's own image has no compiled files of the standard library.
RUN python -m compileall -q -x '/(site-packages|idlelib|lib2to3|tkinter|turtledemo)/' \
    "$(python -c "import sysconfig; print(sysconfig.get_path('stdlib'))")"
# The port on which the node's proxy serves algorithm containers, as in the official image.
ENV PROXY_SERVER_PORT=80
