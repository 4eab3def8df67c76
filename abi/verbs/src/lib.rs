//! libibverbs and librdmacm in front of the engine.
