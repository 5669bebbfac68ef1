# Makes, of functions.txt, the export map (-v what=map), or the table of functions with a weak body for
# each, which the simulation's own stands in for where it has one (-v what=table). A variant for the
# per-thread default stream jumps to the plain one.
/^#/ || NF != 2 { next }

{
	split($2, since, ".")
	symbol[++n] = $1
	version[n] = since[1] * 1000 + since[2] * 10
	base[n] = $1
	thread[n] = sub(/_ptsz$|_ptds$/, "", base[n])
	sub(/_v[0-9]$/, "", base[n])
}

END {
	if (what == "map") {
		print "{\n\tglobal:"
		for (i = 1; i <= n; i++)
			print "\t\t" symbol[i] ";"
		print "\tlocal:\n\t\t*;\n};"
		exit
	}
	print "#include \"cuda_core.h\"\n"
	print "#ifdef __aarch64__\n#define JUMP \"b \"\n#else\n#define JUMP \"jmp \"\n#endif\n"
	for (i = 1; i <= n; i++) {
		if (thread[i]) {	# the simulation has one default stream: the legacy one
			plain = symbol[i]
			sub(/_ptsz$|_ptds$/, "", plain)
			print "SIM_API CUresult " symbol[i] "(void);"
			print "__asm__(\".weak " symbol[i] "\\n.type " symbol[i] ", %function\\n\""
			print "\t\"" symbol[i] ": \" JUMP \"" plain "\\n\""
			print "\t\".size " symbol[i] ", .-" symbol[i] "\");\n"
			continue
		}
		print "SIM_API __attribute__((weak)) CUresult " symbol[i] "(void)"
		print "{\n\treturn cu_not_simulated(__func__);\n}\n"
	}
	print "const struct cu_function cu_functions[] = {"
	for (i = 1; i <= n; i++)
		printf "\t{ \"%s\", %d, %s, (void *)%s },\n", base[i], version[i],
		       thread[i] ? "true" : "false", symbol[i]
	print "};\n"
	print "const size_t cu_function_count = " n ";"
}
