/* What the cases of the C edge share with those of the man pages: the device, two connected ends, checks. */
#ifndef WEFT_EDGE_H
#define WEFT_EDGE_H

#include "../../../../tests/verbs/env.h"
#include "said.h"

#endif
