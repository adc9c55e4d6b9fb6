/* Runs a target over files, without a fuzzer: what `make test` does with the committed inputs. Arguments are folders,
 * which are not searched any deeper. Fails when there was nothing to run. A finding ends the process, as it does
 * under libFuzzer; the last name on stderr is its input. */
#include "fuzz.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>

static void fail(const char *what, const char *path)
{
    fprintf(stderr, "%s %s: %s\n", what, path, strerror(errno));
    exit(1);
}

static void run_file(const char *path)
{
    FILE *file = fopen(path, "re");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0) {
        fail("can't open", path);
    }
    long size = ftell(file);
    rewind(file);
    /* Of exactly this size: a read past the end is a read past an allocation. */
    uint8_t *data = malloc(size > 0 ? (size_t)size : 1);
    if (size < 0 || data == NULL || fread(data, 1, (size_t)size, file) != (size_t)size) {
        fail("can't read", path);
    }
    fclose(file);
    fprintf(stderr, "%s\n", path);
    LLVMFuzzerTestOneInput(data, (size_t)size);
    free(data);
}

static int is_input(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static size_t run_folder(const char *folder)
{
    struct dirent **entries;
    int n = scandir(folder, &entries, is_input, alphasort);
    if (n < 0) {
        fail("can't list", folder);
    }
    for (int i = 0; i < n; i++) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        run_file(path);
        free(entries[i]);
    }
    free(entries);
    return (size_t)n;
}

int main(int argc, char **argv)
{
    size_t files = 0;
    for (int i = 1; i < argc; i++) {
        files += run_folder(argv[i]);
    }
    printf("%zu inputs\n", files);
    return files > 0 ? 0 : 1;
}
