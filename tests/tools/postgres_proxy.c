/* hapax_postgres_proxy SERVER_PORT: says "port N", then obeys lines on its stdin and answers each with one line:
 *
 *   arm FAULT N [SQLSTATE]      "armed": FAULT is a number of enum wire_fault, N the message, from now on
 *   stay FAULT N [SQLSTATE]     the same, and from there on
 *   disarm                      "fired 0|1 seen N"
 *   deliver                     "late 0|1|2": as enum wire_late */
#include "postgres_wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void obey(const char *line)
{
    char word[16] = "";
    char code[8] = "XX000";
    int fault = 0;
    long n = 0;
    int have = sscanf(line, "%15s %d %ld %7s", word, &fault, &n, code);
    if (have >= 3 && fault >= 0 && fault < WIRE_FAULTS) {
        wire_disarm();
        wire_choose((enum wire_fault)fault, code);
        wire_arm(n, strcmp(word, "stay") == 0);
        printf("armed\n");
    } else if (strcmp(word, "disarm") == 0) {
        int fired = wire_disarm();
        printf("fired %d seen %ld\n", fired, wire_seen());
    } else if (strcmp(word, "deliver") == 0) {
        printf("late %d\n", (int)wire_deliver());
    } else {
        printf("what? %s", line);
    }
    fflush(stdout);
}

int main(int argc, char **argv)
{
    int port = argc == 2 ? wire_start((int)strtol(argv[1], NULL, 10)) : -1;
    if (port < 0) {
        perror("hapax_postgres_proxy SERVER_PORT");
        return 2;
    }
    printf("port %d\n", port);
    fflush(stdout);
    char line[80];
    while (fgets(line, sizeof line, stdin) != NULL) {
        obey(line);
    }
    return 0; /* whoever gave the orders has gone */
}
