"""Compiles the listed sources to unchecked bytecode, in the order of the list, outside of the import path.

One process, one order, one hash seed: the bytes of a .pyc hold reference flags that depend on what the process did
before. The results go elsewhere so that no import of this process changes from one build to the next.
"""
import py_compile
import sys
import warnings

listing, target = sys.argv[1:]
warnings.simplefilter("ignore")
with open(listing, encoding="utf-8") as file:
    sources = file.read().splitlines()
for source in sources:
    directory, name = source.rsplit("/", 1)
    stem = name.removesuffix(".py")
    py_compile.compile(
        source,
        cfile=f"{target}{directory}/__pycache__/{stem}.{sys.implementation.cache_tag}.pyc",
        dfile=source,
        doraise=True,
        optimize=0,
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )
