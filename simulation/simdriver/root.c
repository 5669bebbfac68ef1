/* root.c - finds the driver root from the path that this library was loaded from.
 *
 * No environment variable: what a process sees must not be up to the process. The path is taken as
 * the loader had it, links unresolved, so that a second root may link to the first one's libraries. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "sim.h"

static const char *const folders[] = {	/* longest first: /lib64 is also the end of /usr/lib64 */
	"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib",
	"/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/lib64", "/lib",
};

static void strip(char *folder)
{
	size_t have = strlen(folder);

	for (size_t i = 0; i < sizeof(folders) / sizeof(*folders); i++) {
		size_t len = strlen(folders[i]);

		if (have >= len && strcmp(folder + have - len, folders[i]) == 0) {
			folder[have - len] = '\0';
			return;
		}
	}
	folder[0] = '\0';		/* anywhere else: the machine itself */
}

void sim_root(const void *own_symbol, char *root, size_t len)
{
	char cwd[PATH_MAX] = "";
	Dl_info info;
	char *slash;
	int wrote;

	root[0] = '\0';
	if (dladdr(own_symbol, &info) == 0 || info.dli_fname == NULL)
		return;
	if (info.dli_fname[0] != '/' && getcwd(cwd, sizeof(cwd) - 1) != NULL)
		strcat(cwd, "/");
	wrote = snprintf(root, len, "%s%s", cwd, info.dli_fname);
	if (wrote < 0 || (size_t)wrote >= len) {
		root[0] = '\0';
		return;
	}
	slash = strrchr(root, '/');
	if (slash != NULL)
		*slash = '\0';
	strip(root);
	snprintf(cwd, sizeof(cwd), "%s" SIM_FOLDER, root);
	if (access(cwd, F_OK) != 0)
		root[0] = '\0';		/* a folder that only ends so, as cuda-compat's */
}
