/* What a process has for itself. */
#ifndef PEERS_PRIVATE_H
#define PEERS_PRIVATE_H

#include <stdio.h>

/* Pages of mappings without a file, in KiB: private ones, and those that a fork has left in common until
 * somebody writes. */
static double private_kib(void)
{
    char line[1024];
    double sum = 0, kib;
    int nameless = 0;
    FILE *smaps = fopen("/proc/self/smaps", "r");
    if (!smaps)
        return 0;
    while (fgets(line, sizeof line, smaps)) {
        unsigned long from, to, offset, inode;
        char rights[8], device[32];
        if (sscanf(line, "%lx-%lx %7s %lx %31s %lu", &from, &to, rights, &offset, device,
                   &inode) == 6)
            nameless = inode == 0;
        else if (nameless && (sscanf(line, "Private_Clean: %lf", &kib) == 1 ||
                              sscanf(line, "Private_Dirty: %lf", &kib) == 1 ||
                              sscanf(line, "Shared_Clean: %lf", &kib) == 1 ||
                              sscanf(line, "Shared_Dirty: %lf", &kib) == 1))
            sum += kib;
    }
    fclose(smaps);
    return sum;
}

#endif
