// Package chat renders conversations with the chat templates of models, as the model's server did:
// byte for byte like Python's Jinja2 3.1.6 with the settings of Hugging Face's apply_chat_template.
//
// # Terms
//
// A Template is one parsed template. Parse it once, then Render is safe for concurrent use. A Value
// is a Python value: ordered dicts, int of any size and float, str, Markup, bool, None, Undefined,
// list. FromJSON parses JSON text and keeps the order of keys and the type of each number, because
// both are visible in the output. An Input is what the server passes to the template. A Set is the
// result of Load for a model's folder: one template, or several by name (default, tool_use).
//
// # Releases of transformers
//
// Releases differ in how apply_chat_template prepares a conversation, and in what a template can
// do. Input.Transformers selects the rules; see [Transformers]. Input.ContinueFinalMessage leaves
// the final message open, like continue_final_message.
//
// # Supported parts of Jinja
//
//   - Statements: if, for (filter, else, unpacking, recursive), set and set blocks (names, tuples,
//     namespace attributes), macro (defaults, varargs, kwargs, caller), call, filter, with, print,
//     raw, generation, break, continue.
//   - Expressions: all operators, comparisons in chains, conditional expressions, slices,
//     attributes and elements in Python's order, calls with * and **.
//   - White space: trim_blocks and lstrip_blocks on, the signs - and +.
//   - Filters: abs attr batch capitalize center count d default dictsort e escape first float
//     forceescape format groupby indent int items join last length list lower map max min reject
//     rejectattr replace reverse round safe select selectattr slice sort string sum title tojson
//     trim truncate unique upper wordcount. tojson is Hugging Face's: json.dumps with ensure_ascii
//     off.
//   - Tests: all of Jinja's.
//   - Functions: range, namespace, dict, cycler, joiner, raise_exception, strftime_now. loop has
//     all its attributes.
//   - Methods: all of str except encode, maketrans and translate; all of dict, list and tuple
//     that do not change the object. The others are refused, as in the immutable sandbox.
//   - Scopes: names resolve as in Jinja's compiler (scope.go). Loops, macros and blocks have their
//     own variables.
//
// Filters, selections and the test of a for are lazy like generators: they process one element at a
// time, and can be exhausted.
//
// # Remaining differences
//
// Each of these is an error here and, except for the limits, not in Python. All except the limits
// wrap ErrUnsupported:
//
//   - the tags block, extends, include, import, from and autoescape; the filters filesizeformat,
//     pprint, random, striptags, urlencode, urlize, wordwrap and xmlattr; the function lipsum; \N
//     escapes
//   - str.format with a specification after the colon, nested fields or attributes; format_map of
//     anything except a dict; methods of int and float except is_integer; escape, unescape and
//     striptags of Markup; close and send of generators; complex results of **; ordering, mapping
//     and isdisjoint of dict views; attributes of the class dict (except its methods that change
//     nothing) and of the class cycler; the variable self
//   - slices of literals that cannot be sliced, as in 5[1:], and slices of literals beside other
//     keys, as in [1][1:, 2]: Jinja's compiler turns some into undefined and leaves the others to
//     Python
//   - strftime directives that differ between C libraries
//   - text that is not Unicode: half of a surrogate pair, in a template or in JSON. No tokenizer
//     accepts it
//   - the text of a function, a generator or a bound method, which contains an address in Python
//   - the test sameas, and == of two methods, if the result depends on whether two equal strings,
//     numbers or undefined values are one object in Python
//   - values beyond the limits of Options. Python's own limits on recursion and on the digits of an
//     int differ: macros can be nested 200 deep, values 900, an int can have 65,536 bits.
//
// A float to a power that is not a whole number can differ in its last digit.
//
// Printable characters, upper case and lower case follow Unicode 15.0, as in Python 3.12.
//
// # Limits
//
// A template is a program from the model's repository. Options bounds its output, memory, steps and
// depth. A render that exceeds a limit returns an *Error that wraps ErrLimit and has the line. Each
// operation pays for its work and its memory, in proportion and in advance (cost.go). Rendering
// writes only its result, reads no file, and reads no time except Input.Now.
//
// # Inputs from outside
//
// In Python, a template can read more than its input. strftime_now reads the server's clock: the
// caller sets the time in Input.Now, and [Template.ReadsClock] reports whether the time matters.
// The filter random, the function lipsum and texts that contain an address are errors.
package chat
