/* json.c - see json.h. Not a check of the document: what a runtime writes is well formed, and all else is not found. */
#include "json.h"
#include "text.h"

struct place {
	const char *at;
	const char *end;
};

static bool is_space(char character)
{
	return character == ' ' || character == '\t' || character == '\n' || character == '\r';
}

static void skip_space(struct place *place)
{
	while (place->at < place->end && is_space(*place->at))
		place->at++;
}

static bool skip(struct place *place, char what)
{
	skip_space(place);
	if (place->at == place->end || *place->at != what)
		return false;
	place->at++;
	return true;
}

/* From the first quotation mark to behind the second; *text is what lies between, as it is written. */
static bool read_text(struct place *place, struct place *text)
{
	text->at = ++place->at;
	for (; place->at < place->end && *place->at != '"'; place->at++)
		if (*place->at == '\\' && ++place->at == place->end)
			return false;
	if (place->at == place->end)
		return false;
	text->end = place->at++;
	return true;
}

static bool equals(struct place text, const char *key)
{
	size_t length = text_length(key);

	if ((size_t)(text.end - text.at) != length)
		return false;
	for (size_t i = 0; i < length; i++)
		if (text.at[i] != key[i])
			return false;
	return true;
}

/* `\u0026`, as Go writes an ampersand, an angle bracket: those below 128 alone. 0: it is another,
 * or there is less: the quotation mark at the end is no digit. */
static char unicode(struct place *text)
{
	unsigned int value = 0;

	for (int i = 0; i < 4; i++) {
		char digit = *text->at++;

		if (digit >= '0' && digit <= '9')
			value = value * 16 + (unsigned int)(digit - '0');
		else if ((digit | 32) >= 'a' && (digit | 32) <= 'f')
			value = value * 16 + (unsigned int)((digit | 32) - 'a') + 10;
		else
			return 0;
	}
	return value < 128 ? (char)value : 0;
}

static bool decode(struct place text, char *out, size_t room)
{
	size_t length = 0;

	while (text.at < text.end) {
		char character = *text.at++;

		if (character == '\\') {
			character = *text.at++;
			if (character == 'u')
				character = unicode(&text);
			else if (character != '"' && character != '\\' && character != '/')
				return false;
		}
		if (character == '\0' || length + 1 >= room)
			return false;
		out[length++] = character;
	}
	out[length] = '\0';
	return length > 0;
}

/* The value of a key: true if it was taken, or if it is the object to look into. */
static bool take(struct place *place, bool last, char *out, size_t room)
{
	struct place text;

	if (!last)
		return skip(place, '{');
	skip_space(place);
	return place->at < place->end && *place->at == '"' && read_text(place, &text) && decode(text, out, room);
}

bool json_text(const char *document, size_t length, const char *outer, const char *key, char *out, size_t room)
{
	const char *keys[2] = { outer == NULL ? key : outer, key };
	size_t wanted = outer == NULL ? 1 : 2, level = 0, depth = 0;	/* level: so many keys are behind us */
	struct place place = { document, document + length }, text;

	while (place.at < place.end) {
		char character = *place.at;

		if (character == '"') {
			if (!read_text(&place, &text))
				return false;
			if (depth != level + 1 || !skip(&place, ':') || !equals(text, keys[level]))
				continue;
			if (!take(&place, level + 1 == wanted, out, room))
				return false;
			if (++level == wanted)
				return true;
			depth++;
			continue;
		}
		if (character == '{' || character == '[')
			depth++;
		if ((character == '}' || character == ']') && --depth <= level)
			return false;		/* the end of the object in which we look */
		place.at++;
	}
	return false;
}
