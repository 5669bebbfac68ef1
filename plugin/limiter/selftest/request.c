/* request.c - WORK/request: what is to be tried, a line for each thing:
 *
 *	edgegpu-selftest 1
 *	id 1f2e…                  stands in the result again
 *	seconds N                 a run may take: one that takes longer hangs
 *	limiter FOLDER            with the limiter's two libraries
 *	driver FOLDER             with the driver's own, under the two SONAMEs
 *	card GPU-…                one for each card */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "selftest.h"

/* No quotes and no blanks: these texts stand in JSON and in the limits file as they are. */
static bool plain(const char *text)
{
	for (; *text != '\0'; text++)
		if (!isalnum((unsigned char)*text) && strchr("-_/.:", *text) == NULL)
			return false;
	return true;
}

static bool put(char *out, size_t room, const char *value)
{
	if (!plain(value) || *value == '\0' || strlen(value) >= room)
		return false;
	strcpy(out, value);
	return true;
}

static bool folder(char *out, const char *value)
{
	if (*value != '/' || strlen(value) >= PATH_ROOM)
		return false;
	strcpy(out, value);
	return true;
}

static bool take(struct setup *out, const char *word, const char *value)
{
	if (strcmp(word, "id") == 0)
		return put(out->id, sizeof(out->id), value);
	if (strcmp(word, "limiter") == 0)
		return folder(out->limiter, value);
	if (strcmp(word, "driver") == 0)
		return folder(out->driver, value);
	if (strcmp(word, "seconds") == 0)
		return (out->seconds = (unsigned int)atoi(value)) > 0 && out->seconds <= SECONDS_MAX;
	if (strcmp(word, "card") == 0)
		return out->count < CARDS_TRIED && put(out->cards[out->count++], CARD_ROOM, value);
	return false;
}

static bool read_lines(FILE *file, struct setup *out)
{
	char line[PATH_ROOM + 64], *value;

	if (fgets(line, sizeof(line), file) == NULL || strcmp(line, "edgegpu-selftest 1\n") != 0)
		return false;
	while (fgets(line, sizeof(line), file) != NULL) {
		line[strcspn(line, "\n")] = '\0';
		value = strchr(line, ' ');
		if (value == NULL)
			return false;
		*value++ = '\0';
		if (!take(out, line, value))
			return false;
	}
	return out->seconds > 0 && *out->id != '\0' && *out->limiter != '\0' && *out->driver != '\0' && out->count > 0;
}

bool request_read(const char *work, struct setup *out)
{
	char path[PATH_ROOM + 16];
	bool done;
	FILE *file;

	memset(out, 0, sizeof(*out));
	if (!folder(out->work, work))
		return false;
	snprintf(path, sizeof(path), "%s/request", work);
	file = fopen(path, "re");
	if (file == NULL)
		return false;
	done = read_lines(file, out);
	fclose(file);
	return done;
}
