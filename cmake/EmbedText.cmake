# Write OUT: a header with `static const char NAME[]` holding the text of IN.
file(READ ${IN} text)
string(REPLACE "\\" "\\\\" text "${text}")
string(REPLACE "\"" "\\\"" text "${text}")
string(REPLACE "\n" "\\n\"\n    \"" text "${text}")
file(WRITE ${OUT} "/* Made from ${NAME} by cmake/EmbedText.cmake. */\nstatic const char ${NAME}[] =\n    \"${text}\";\n")
