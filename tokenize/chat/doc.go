// Package chat renders conversations with the chat templates that models
// publish, as the server that served the model did: byte for byte what Python's
// Jinja2 3.1.6 gives under the settings of Hugging Face's apply_chat_template.
//
// # Terms
//
// A Template is one parsed template; Parse once, Render from as many goroutines
// as there are. A Value is a Python value: ordered dicts, int of any size and
// float apart, str, Markup, bool, None, Undefined, list. FromJSON makes one of
// JSON text and keeps the order of keys and the kind of each number, because both
// show in the output. An Input is what the server gave to the template. A Set is
// what Load finds in a model's folder: one template, or several by name
// (default, tool_use).
//
// # Releases of transformers
//
// What apply_chat_template does to a conversation before it renders has changed, and so
// has what a template may do. Input.Transformers says whose rules are followed; see
// [Transformers]. Input.ContinueFinalMessage leaves the final message open, as
// continue_final_message does.
//
// # What of Jinja there is
//
//   - Statements: if, for (filter, else, unpacking, recursive), set and set blocks
//     (names, tuples, namespace attributes), macro (defaults, varargs, kwargs,
//     caller), call, filter, with, print, raw, generation, break, continue.
//   - Expressions: all operators, comparisons in chains, conditional expressions,
//     slices, attributes and elements in Python's order, calls with * and **.
//   - White space: trim_blocks and lstrip_blocks on, the signs - and +.
//   - Filters: abs attr batch capitalize center count d default dictsort e escape
//     first float forceescape format groupby indent int items join last length
//     list lower map max min reject rejectattr replace reverse round safe select
//     selectattr slice sort string sum title tojson trim truncate unique upper
//     wordcount. tojson is Hugging Face's: json.dumps with ensure_ascii off.
//   - Tests: all of Jinja's.
//   - Functions: range, namespace, dict, cycler, joiner, raise_exception,
//     strftime_now. loop has all its attributes.
//   - Methods: those of str but encode, maketrans and translate; those of dict,
//     list and tuple that change nothing. The others are refused, as by the
//     immutable sandbox.
//   - Names mean what Jinja's compiler makes them mean (see scope.go): loops,
//     macros and blocks have variables of their own.
//
// Filters, selections and the test of a for work one element at a time and only
// when asked, as generators do, and can be used up.
//
// # Differences that remain
//
// Each of these is an error here and, except for the limits, not in Python; all
// but the limits wrap ErrUnsupported:
//
//   - the tags block, extends, include, import, from and autoescape; the filters
//     filesizeformat, pprint, random, striptags, urlencode, urlize, wordwrap and
//     xmlattr; the function lipsum; \N escapes
//   - str.format with a specification after the colon, nested fields or
//     attributes; format_map of anything but a dict; methods of int and float but
//     is_integer; escape, unescape and striptags of Markup; close and send of
//     generators; complex results of **; ordering, mapping and isdisjoint of dict
//     views; attributes of the classes dict (but its methods that change nothing)
//     and cycler; the variable self
//   - slices of literals that have none, as in 5[1:], and slices of literals beside
//     other keys, as in [1][1:, 2], which Jinja's compiler turns into undefined here
//     and leaves to Python there
//   - strftime directives that the C library does not share everywhere
//   - text that is not Unicode: half of a surrogate pair, in a template or in
//     JSON, which no tokenizer takes either
//   - the text of a function, a generator or a bound method, which contains an address in Python
//   - the test sameas, and == of two methods, where it would have to know whether two
//     equal strings, numbers or undefined values are one object in Python
//   - what exceeds the limits of Options. Python's own limits on recursion and on
//     the digits of an int are met at other places: macros may be nested 200 deep,
//     values 900, an int may have 65,536 bits.
//
// A float to a power that is not a whole number can differ in its last digit.
//
// Printable characters, upper case and lower case follow Unicode 15.0, as in Python 3.12.
//
// # Limits
//
// A template is a program from the model's repository. Output, memory, steps and
// depth are bounded by Options; a render that meets one of them ends with an
// *Error that wraps ErrLimit and has the line. Each operation pays for its work and
// its memory, in proportion and beforehand (cost.go). Rendering writes nothing but its
// result, reads no file and knows no time but Input.Now.
//
// # Inputs from outside
//
// In Python, a template can read more than its input. strftime_now reads the server's clock:
// the caller sets the time in Input.Now, and [Template.ReadsClock] reports whether the time
// matters. The filter random, the function lipsum and texts that contain an address are errors.
package chat
