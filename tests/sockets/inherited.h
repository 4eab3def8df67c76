/* This program started anew by a case, with a connection that it inherits. */
#ifndef WEFT_SOCKETS_INHERITED_H
#define WEFT_SOCKETS_INHERITED_H

/* The whole of such a program; what it ends with. */
int inherited_main(int argc, char **argv);

#endif
