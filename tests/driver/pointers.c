/* pointers.c - asks cuGetProcAddress for every name, version and flag, and prints whose symbol each answer is.
 *
 * pointers NAMES VERSIONS: two files with a word a line. One line for each call: generation (1: cuGetProcAddress, 2:
 * cuGetProcAddress_v2), name, version, flags, result, status, symbol, and whether it is of the library that stands under
 * the driver's SONAME ("front") or of another one ("behind"). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int lookup_v1(const char *name, void **out, int version, uint64_t flags);
typedef int lookup_v2(const char *name, void **out, int version, uint64_t flags, int *status);

static char *words[4096];
static int versions[256];

static int read_words(const char *path, char **out, int most)
{
	FILE *file = fopen(path, "re");
	char line[256];
	int n = 0;

	while (file != NULL && n < most && fscanf(file, "%255s", line) == 1)
		out[n++] = strdup(line);
	if (file != NULL)
		fclose(file);
	return n;
}

static void ask(void *front, int generation, void *lookup, const char *name, int version, int flags)
{
	int status = -1, result;
	void *pointer = NULL;
	Dl_info info = { .dli_sname = NULL }, own;

	if (generation == 1)
		result = ((lookup_v1 *)lookup)(name, &pointer, version, (uint64_t)flags);
	else
		result = ((lookup_v2 *)lookup)(name, &pointer, version, (uint64_t)flags, &status);
	if (pointer != NULL)
		dladdr(pointer, &info);
	if (pointer != NULL && info.dli_saddr != pointer)
		info.dli_sname = "?";
	dladdr(front, &own);
	printf("%d %s %d %d %d %d %s %s\n", generation, name, version, flags, result, status,
	       info.dli_sname == NULL ? "-" : info.dli_sname,
	       pointer == NULL ? "-" : info.dli_fbase == own.dli_fbase ? "front" : "behind");
}

int main(int argc, char **argv)
{
	static char *texts[256];
	void *library = argc == 3 ? dlopen("libcuda.so.1", RTLD_NOW) : NULL;
	void *lookups[] = { NULL, NULL, NULL };
	int nwords, nversions;

	if (library == NULL) {
		fprintf(stderr, "%s\n", argc == 3 ? dlerror() : "pointers NAMES VERSIONS");
		return 1;
	}
	lookups[1] = dlsym(library, "cuGetProcAddress");
	lookups[2] = dlsym(library, "cuGetProcAddress_v2");
	nwords = read_words(argv[1], words, 4096);
	nversions = read_words(argv[2], texts, 256);
	for (int v = 0; v < nversions; v++)
		versions[v] = atoi(texts[v]);
	for (int g = 1; g <= 2; g++)
		for (int w = 0; w < nwords && lookups[g] != NULL; w++)
			for (int v = 0; v < nversions; v++)
				for (int flags = 0; flags <= 2; flags++)
					ask(dlsym(library, "cuInit"), g, lookups[g], words[w],
					    versions[v], flags);
	return 0;
}
