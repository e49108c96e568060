// What the test programs have in common: each ends at once, with the line, if something is not as expected.
#ifndef EXPECT_H
#define EXPECT_H

#include <rdmc.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

// Also in a child of fork, where nothing that is registered for the end of the program may run.
static inline void die(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
  _exit(1);
}

#define EXPECT(what) \
  do {               \
    if (!(what)) die("line %d: not %s", __LINE__, #what); \
  } while (0)

// Ends the program unless the call succeeds.
#define DO(call)                                                       \
  do {                                                                 \
    rdmc_error error;                                                  \
    if ((call) != RDMC_OK) die("line %d: %s: %s", __LINE__, #call, error.text); \
  } while (0)

#endif
