//! The bodies of the fuzz targets, to be run by the fuzzer and, over the committed corpora, by the tests.
