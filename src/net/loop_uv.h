/* The one door through which the files of net/ reach the uv loop behind a struct loop. */
#ifndef NET_LOOP_UV_H
#define NET_LOOP_UV_H

#include "net/loop.h"

#include <uv.h>

uv_loop_t *loop_uv(struct loop *l);

#endif
