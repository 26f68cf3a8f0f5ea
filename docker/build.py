"""Builds the images of docker/images.toml: ``python docker/build.py [NAME ...] [--network host]``.

The package index of the environment (PIP_INDEX_URL, PIP_EXTRA_INDEX_URL) is passed on to the build, and
DOCKER_BUILD_NETWORK is its network where no --network is given.
"""

import argparse
import sys

from v6_workbench.network import images


def main() -> int:
    try:
        listed = images.listed()
    except images.EngineError as error:
        print(error, file=sys.stderr)
        return 1
    parser = argparse.ArgumentParser(description="Build the images of docker/images.toml.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of: {', '.join(listed)} (default: all)")
    parser.add_argument("--network", help="the engine's network for the build, such as host (default: the engine's)")
    parser.add_argument("--python", default=images.PYTHON, help="the base image (default: %(default)s)")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in listed]
    if unknown:
        parser.error(f"no image is called {unknown[0]}; docker/images.toml lists {', '.join(listed)}")
    try:
        for name in options.names or listed:
            images.build_method(listed[name], network=options.network, python=options.python)
    except images.EngineError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
