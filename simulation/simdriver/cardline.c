/* cardline.c - reads one line of the cards file. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

struct pair {
	char *key, *value;
};

#define PAIRS_MAX 12

static bool number(const char *text, uint64_t max, uint64_t *out)
{
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	*out = strtoull(text, &end, 10);
	return errno == 0 && *end == '\0' && *out <= max;
}

static bool small(const char *text, unsigned int max, unsigned int *out)
{
	uint64_t wide;

	if (!number(text, max, &wide))
		return false;
	*out = (unsigned int)wide;
	return true;
}

static bool copy(char *to, size_t len, const char *from)
{
	return *from != '\0' && snprintf(to, len, "%s", from) < (int)len;
}

/* key=value or key="value with blanks"; the count, or -1. */
static int split(char *text, struct pair *pairs)
{
	int n = 0;

	for (;;) {
		char stop = ' ';

		text += strspn(text, " \t");
		if (*text == '\0')
			return n;
		if (n == PAIRS_MAX)
			return -1;
		pairs[n].key = text;
		text = strchr(text, '=');
		if (text == NULL)
			return -1;
		*text++ = '\0';
		if (*text == '"') {
			stop = '"';
			text++;
		}
		pairs[n++].value = text;
		text += stop == ' ' ? strcspn(text, " \t") : strcspn(text, "\"");
		if (stop == '"' && *text != '"')
			return -1;
		if (*text != '\0')
			*text++ = '\0';
	}
}

static bool pci(const char *text, struct sim_card *card)
{
	unsigned int function;
	char end;

	return sscanf(text, "%8x:%2x:%2x.%1x%c", &card->domain, &card->bus, &card->slot,
		      &function, &end) == 4 && function == 0 && card->slot < 32;
}

static bool card_pair(struct sim_card *card, const struct pair *pair)
{
	char end;

	if (strcmp(pair->key, "uuid") == 0)
		return copy(card->uuid, sizeof(card->uuid), pair->value);
	if (strcmp(pair->key, "name") == 0)
		return copy(card->name, sizeof(card->name), pair->value);
	if (strcmp(pair->key, "mib") == 0)
		return number(pair->value, 1ULL << 40, &card->mib) && card->mib > 0;
	if (strcmp(pair->key, "minor") == 0)
		return small(pair->value, 254, &card->minor);
	if (strcmp(pair->key, "pci") == 0)
		return pci(pair->value, card);
	if (strcmp(pair->key, "cc") == 0)
		return sscanf(pair->value, "%2u.%2u%c", &card->cc_major, &card->cc_minor, &end) == 2;
	if (strcmp(pair->key, "exclusive") == 0) {
		card->exclusive = strcmp(pair->value, "on") == 0;
		return card->exclusive || strcmp(pair->value, "off") == 0;
	}
	if (strcmp(pair->key, "mig") == 0) {
		card->mig_mode = strcmp(pair->value, "on") == 0;
		return card->mig_mode || strcmp(pair->value, "off") == 0;
	}
	return false;
}

static const char *add_card(struct sim_driver *drv, const struct pair *pairs, int n)
{
	struct sim_card *card = &drv->cards[drv->ncards];

	if (drv->ncards == SIM_CARDS_MAX)
		return "too many cards";
	memset(card, 0, sizeof(*card));
	card->minor = UINT_MAX;
	card->cc_major = 7;
	card->cc_minor = 5;
	for (int i = 0; i < n; i++)
		if (!card_pair(card, &pairs[i]))
			return pairs[i].key;
	if (card->uuid[0] == '\0' || card->name[0] == '\0' || card->mib == 0 ||
	    card->minor == UINT_MAX || card->bus + card->slot + card->domain == 0)
		return "a card needs uuid, name, mib, pci and minor";
	for (unsigned int i = 0; i < drv->ncards; i++)
		if (strcmp(drv->cards[i].uuid, card->uuid) == 0 || drv->cards[i].minor == card->minor)
			return "uuid or minor given twice";
	drv->ncards++;
	return NULL;
}

static bool mig_pair(struct sim_mig *mig, const struct pair *pair)
{
	char end;

	if (strcmp(pair->key, "uuid") == 0)
		return copy(mig->uuid, sizeof(mig->uuid), pair->value);
	if (strcmp(pair->key, "profile") == 0)
		return copy(mig->profile, sizeof(mig->profile), pair->value);
	if (strcmp(pair->key, "mib") == 0)
		return number(pair->value, 1ULL << 40, &mig->mib) && mig->mib > 0;
	if (strcmp(pair->key, "gi") == 0)
		return small(pair->value, 255, &mig->gi);
	if (strcmp(pair->key, "ci") == 0)
		return small(pair->value, 255, &mig->ci);
	if (strcmp(pair->key, "caps") == 0)
		return sscanf(pair->value, "%5u,%5u%c", &mig->caps[0], &mig->caps[1], &end) == 2;
	return strcmp(pair->key, "card") == 0;
}

static struct sim_card *mig_card(struct sim_driver *drv, const struct pair *pairs, int n)
{
	for (int i = 0; i < n; i++) {
		if (strcmp(pairs[i].key, "card") != 0)
			continue;
		for (unsigned int c = 0; c < drv->ncards; c++)
			if (strcmp(drv->cards[c].uuid, pairs[i].value) == 0)
				return &drv->cards[c];
	}
	return NULL;
}

static const char *add_mig(struct sim_driver *drv, const struct pair *pairs, int n)
{
	struct sim_card *card = mig_card(drv, pairs, n);
	struct sim_mig *mig;

	if (card == NULL)
		return "card= must name a card of an earlier line";
	if (card->nmig == SIM_MIG_MAX)
		return "more than 7 MIG instances on one card";
	mig = &card->mig[card->nmig];
	memset(mig, 0, sizeof(*mig));
	mig->gi = card->nmig + 1;
	for (int i = 0; i < n; i++)
		if (!mig_pair(mig, &pairs[i]))
			return pairs[i].key;
	if (mig->uuid[0] == '\0' || mig->profile[0] == '\0' || mig->mib == 0 || mig->caps[1] == 0)
		return "a MIG instance needs card, uuid, profile, mib and caps";
	card->mig_mode = true;
	card->nmig++;
	return NULL;
}

static const char *header(struct sim_driver *drv, const char *key, const char *value)
{
	unsigned int major, minor;
	char end;

	if (strcmp(key, "driver") == 0)
		return copy(drv->version, sizeof(drv->version), value) ? NULL : key;
	if (strcmp(key, "context_mib") == 0)
		return number(value, 1 << 20, &drv->context_mib) ? NULL : key;
	if (strcmp(key, "reserved_mib") == 0)
		return number(value, 1 << 20, &drv->reserved_mib) ? NULL : key;
	if (strcmp(key, "module_mib") == 0)
		return number(value, 1 << 20, &drv->module_mib) ? NULL : key;
	if (strcmp(key, "init_ms") == 0)
		return number(value, 60000, &drv->init_ms) ? NULL : key;
	if (strcmp(key, "kernel_us") == 0)
		return number(value, 10000000, &drv->kernel_us) ? NULL : key;
	if (strcmp(key, "cuda") != 0)
		return "unknown word at the start of the line";
	if (sscanf(value, "%2u.%2u%c", &major, &minor, &end) != 2)
		return key;
	drv->cuda = (int)(major * 1000 + minor * 10);
	return NULL;
}

const char *sim_card_line(struct sim_driver *drv, char *line)
{
	struct pair pairs[PAIRS_MAX];
	char *rest;
	int n;

	line += strspn(line, " \t");
	line[strcspn(line, "\r\n")] = '\0';
	if (*line == '\0' || *line == '#')
		return NULL;
	rest = line + strcspn(line, " \t");
	if (*rest != '\0')
		*rest++ = '\0';
	if (strcmp(line, "card") != 0 && strcmp(line, "mig") != 0)
		return header(drv, line, rest + strspn(rest, " \t"));
	n = split(rest, pairs);
	if (n < 0)
		return "not key=value";
	return *line == 'c' ? add_card(drv, pairs, n) : add_mig(drv, pairs, n);
}
