/* cuda_visible.c - CUDA_VISIBLE_DEVICES, by index or by the start of a uuid, as the real one reads it:
 * the list ends at the first entry that names nothing. Order is PCI order, always. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "cuda_core.h"

static struct cu_dev whole(const struct sim_driver *drv, const struct sim_card *card)
{
	return (struct cu_dev){ .card = card, .entry = card->entry, .total = card->mib * SIM_MIB,
				.limit = (card->mib - drv->reserved_mib) * SIM_MIB };
}

static struct cu_dev instance(const struct sim_mig *mig)
{
	return (struct cu_dev){ .card = mig->card, .mig = mig, .entry = mig->entry,
				.total = mig->mib * SIM_MIB, .limit = mig->mib * SIM_MIB };
}

/* Cards as they are; of a split card its first instance. Lost cards are not there. */
static int all(const struct sim_driver *drv, struct cu_dev *out)
{
	int n = 0;

	for (unsigned int i = 0; i < drv->ncards; i++) {
		const struct sim_card *card = &drv->cards[i];

		if (sim_lost(card->entry))
			continue;
		if (!card->mig_mode)
			out[n++] = whole(drv, card);
		else if (card->nmig > 0)
			out[n++] = instance(&card->mig[0]);
	}
	return n;
}

static bool by_index(const struct cu_dev *from, int n, const char *text, struct cu_dev *out)
{
	char *end;
	long index = strtol(text, &end, 10);

	if (end == text || *end != '\0' || index < 0 || index >= n)
		return false;
	*out = from[index];
	return true;
}

static bool by_uuid(const struct sim_driver *drv, const char *text, struct cu_dev *out)
{
	size_t len = strlen(text);
	int hits = 0;

	for (unsigned int i = 0; i < drv->ncards; i++) {
		const struct sim_card *card = &drv->cards[i];

		if (sim_lost(card->entry))
			continue;
		if (!card->mig_mode && strncmp(card->uuid, text, len) == 0) {
			*out = whole(drv, card);
			hits++;
		}
		for (unsigned int m = 0; m < card->nmig; m++) {
			if (strncmp(card->mig[m].uuid, text, len) != 0)
				continue;
			*out = instance(&card->mig[m]);
			hits++;
		}
	}
	return hits == 1;
}

static bool twice(const struct cu_dev *list, int n)
{
	for (int i = 0; i < n; i++)
		if (list[i].entry == list[n].entry)
			return true;
	return false;
}

int cu_visible(const struct sim_driver *drv, struct cu_dev *out, int max)
{
	const char *env = getenv("CUDA_VISIBLE_DEVICES");
	struct cu_dev found[SIM_CARDS_MAX];
	char text[1024], *rest = text, *word;
	int have = all(drv, found), n = 0;

	if (env == NULL) {
		memcpy(out, found, sizeof(*out) * (size_t)have);
		return have;
	}
	strncpy(text, env, sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	while (n < max && (word = strsep(&rest, ",")) != NULL) {
		bool named = strncmp(word, "GPU-", 4) == 0 || strncmp(word, "MIG-", 4) == 0;

		word += strspn(word, " ");
		word[strcspn(word, " ")] = '\0';
		if (!(named ? by_uuid(drv, word, &out[n]) : by_index(found, have, word, &out[n])))
			break;
		if (twice(out, n))
			return 0;
		n++;
	}
	return n;
}
