package chat

import (
	"fmt"
	"slices"
	"strings"
)

// These are the parts of Jinja and Python that no known chat template uses. Parse refuses a
// template that names one of these parts, and reports the line. If a render computes the name, as
// in map(name), the render refuses it.
var (
	unsupportedFilters = []string{
		"abs", "attr", "batch", "center", "e", "escape", "filesizeformat", "forceescape", "format",
		"groupby", "max", "min", "pprint", "random", "reverse", "round", "slice", "striptags", "sum",
		"truncate", "urlencode", "urlize", "wordcount", "wordwrap", "xmlattr",
	}
	unsupportedTests = []string{
		"callable", "divisibleby", "escaped", "even", "filter", "lower", "odd", "sameas", "test", "upper",
	}
	unsupportedFunctions = []string{"cycler", "dict", "joiner", "lipsum", "self"}
	// These variables exist only in macros.
	unsupportedMacroNames = []string{"caller", "kwargs", "varargs"}
	unsupportedLoopAttrs  = []string{"changed", "cycle", "depth", "depth0"}
	unsupportedStrMethods = []string{
		"casefold", "center", "count", "encode", "expandtabs", "find", "format", "format_map", "index",
		"isalnum", "isalpha", "isascii", "isdecimal", "isdigit", "isidentifier", "islower", "isnumeric",
		"isprintable", "isspace", "istitle", "isupper", "ljust", "maketrans", "partition", "removeprefix",
		"removesuffix", "rfind", "rindex", "rjust", "rpartition", "rsplit", "splitlines", "swapcase",
		"translate", "zfill",
	}
	unsupportedMarkupMethods = []string{"escape", "striptags", "unescape"}
	unsupportedSeqMethods    = []string{"copy", "count", "index"}
	unsupportedDictMethods   = []string{"copy", "fromkeys"}
	unsupportedIntAttrs      = []string{
		"as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator", "from_bytes", "imag",
		"is_integer", "numerator", "real", "to_bytes",
	}
	unsupportedFloatAttrs = []string{
		"as_integer_ratio", "conjugate", "fromhex", "hex", "imag", "is_integer", "real",
	}
	unsupportedMacroAttrs = []string{
		"arguments", "caller", "catch_kwargs", "catch_varargs", "explicit_caller", "name",
	}
	unsupportedRangeAttrs = []string{"count", "index", "start", "step", "stop"}
	unsupportedViewAttrs  = []string{"isdisjoint", "mapping"}
	unsupportedIterAttrs  = []string{"close", "gi_running", "gi_suspended", "gi_yieldfrom", "send", "throw"}
)

// unsupportedNames contains the names of the unsupported methods and attributes of all types. Parse
// refuses a call with one of these names, even though the type of the object is unknown.
var unsupportedNames = slices.Concat(unsupportedStrMethods, unsupportedMarkupMethods, unsupportedSeqMethods,
	unsupportedDictMethods, unsupportedIntAttrs, unsupportedFloatAttrs, unsupportedViewAttrs, unsupportedIterAttrs)

// unsupportedf returns the error for a part of Jinja or Python that this package does not support.
func unsupportedf(format string, args ...any) error {
	what := fmt.Sprintf(format, args...)
	return fmt.Errorf("%w: %s (rewrite this line without it, here and on the server)", ErrUnsupported, what)
}

// checkAttr returns an error if Python's object has the attribute and this package does not support
// it. Without this error, the result would be undefined or the element with that name.
func checkAttr(v Value, name string) error {
	if strings.HasPrefix(name, "__") {
		return unsupportedf("attribute '%s'", name)
	}
	var names []string
	switch v.kind {
	case Markup:
		return unsupportedf("attribute '%s' of Markup", name)
	case String:
		names = unsupportedStrMethods
	case List:
		names = unsupportedSeqMethods
	case Tuple:
		names = unsupportedSeqMethods[1:] // a tuple has no copy
	case Dict:
		names = unsupportedDictMethods
	case Bool, Int:
		names = unsupportedIntAttrs
	case Float:
		names = unsupportedFloatAttrs
	}
	switch v.ref.(type) {
	case *macro:
		names = unsupportedMacroAttrs
	case *loopObject:
		names = unsupportedLoopAttrs
	case *rangeObject:
		names = unsupportedRangeAttrs
	case *view:
		names = unsupportedViewAttrs
	case *generator:
		names = unsupportedIterAttrs
	}
	if slices.Contains(names, name) {
		return unsupportedf("attribute '%s' of %s", name, typeName(v))
	}
	return nil
}
