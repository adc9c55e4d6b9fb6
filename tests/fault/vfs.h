/* A SQLite VFS whose n-th call fails: the default one, wrapped. It is registered as the default before a store is
 * opened, so that the store's own VFS, which gathers writes, stands on it: what fails here fails as a system call of
 * the real one would.
 *
 * Reads, writes, syncs, truncations, sizes, locks, shared memory, opening, deleting and looking for files are counted
 * together; a kind of fault applies to those it can happen to. Unlocking and closing never fail. */
#ifndef TESTS_FAULT_VFS_H
#define TESTS_FAULT_VFS_H

#include <stdbool.h>

enum vfs_fault {
    VFS_IO_ERROR,   /* any call */
    VFS_DISK_FULL,  /* writes (after half of the bytes), syncs, opening, shared memory */
    VFS_BUSY,       /* locks, of the file and of the log's index */
    VFS_LATE_ERROR, /* writes and syncs: done, and then reported as failed */
};

void vfs_register(void);
void vfs_choose(enum vfs_fault kind);     /* what arm() injects from now on */
void vfs_arm(long n, bool from_there_on); /* n counts from 1 */
bool vfs_disarm(void);                    /* did one fail? */
long vfs_seen(void);                      /* calls of that kind since vfs_arm() */

#endif
