/* cards.c - reads the cards file and puts its cards into PCI order. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

static int by_pci(const void *a, const void *b)
{
	const struct sim_card *x = a, *y = b;

	if (x->domain != y->domain)
		return x->domain < y->domain ? -1 : 1;
	if (x->bus != y->bus)
		return x->bus < y->bus ? -1 : 1;
	return (x->slot > y->slot) - (x->slot < y->slot);
}

static int read_lines(struct sim_driver *drv, FILE *file, const char *path)
{
	char line[1024];

	for (unsigned int n = 1; fgets(line, sizeof(line), file) != NULL; n++) {
		const char *wrong = strchr(line, '\n') == NULL && !feof(file) ?
			"line too long" : sim_card_line(drv, line);

		if (wrong != NULL) {
			fprintf(stderr, "%s:%u: bad line: %s\n", path, n, wrong);
			return -EINVAL;
		}
	}
	return ferror(file) ? -EIO : 0;
}

int sim_cards_load(struct sim_driver *drv)
{
	char path[PATH_MAX + 64];
	FILE *file;
	int ret;

	drv->ncards = 0;
	drv->cuda = 12060;
	drv->context_mib = 0;
	drv->reserved_mib = 0;
	drv->module_mib = 0;
	drv->init_ms = 0;
	drv->kernel_us = 5;
	strcpy(drv->version, "560.35.03");
	snprintf(path, sizeof(path), "%s" SIM_FOLDER "/cards", drv->root);
	file = fopen(path, "re");
	if (file == NULL) {
		ret = -errno;
		fprintf(stderr, "%s: cannot open: %s\n", path, strerror(-ret));
		return ret;
	}
	ret = read_lines(drv, file, path);
	fclose(file);
	qsort(drv->cards, drv->ncards, sizeof(drv->cards[0]), by_pci);
	return ret;
}
