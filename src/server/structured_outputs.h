// What a request says about the form of its answer, compiled: `response_format`, `structured_outputs`, its older spelling
// `guided_*`, and tools that must be called. Pure functions, safe on any bytes.
#pragma once

#include "protocol/sampling_params.h"
#include "server/field_reader.h"
#include "server/openai_types.h"

namespace tutti {

// Empty when nothing is said. Throws InvalidRequest that names the field, and what in it is not supported.
GrammarBytes read_structured_outputs(const FieldReader& fields);

// Of an answer that calls tools: the arguments of the named one, or a list of {"name": ..., "parameters": ...}.
GrammarBytes grammar_of_tools(const ChatPrompt& chat);

}  // namespace tutti
