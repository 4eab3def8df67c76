/* What a case and its children say on standard error. */
#ifndef WEFT_SAID_H
#define WEFT_SAID_H

/* From here on standard error is kept; it is passed on when the process that called this ends. */
void listen_to_stderr(void);

/* How many of the lines that were kept match this extended regular expression. */
int lines_said(const char *pattern);

#endif
