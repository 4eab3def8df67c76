/*
 * Weft inside a program.
 *
 * The program is written against the headers of libibverbs and librdmacm, as for any RDMA device, and linked with
 * `pkg-config --libs weft` (libweft.so) or `weft-static` (libweft.a) in their place. It finds the device weft0 without
 * `weft run`. This header has what is Weft's alone.
 */
#ifndef WEFT_H
#define WEFT_H

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the library that the program runs with, for instance "0.1.0". */
extern const char weft_version[];

#ifdef __cplusplus
}
#endif

#endif
