// Package chat renders conversations with a model's chat template. The output is identical, byte
// for byte, to the output of Python's Jinja2 3.1.6 with the settings of Hugging Face's
// apply_chat_template.
//
// # Terms
//
// A Template is one parsed template. Parse a template once and reuse it: the method Render is safe
// for concurrent use. A Value is a Python value: an ordered dict, an int of any size, a float, str,
// Markup, bool, None, Undefined or list. FromJSON parses JSON text and keeps the order of keys and
// the type of each number, because both are visible in the output. An Input holds the variables
// that the server passes to the template. A Set is the result of Load for a model's folder. It
// contains one template, or several templates with names such as default and tool_use.
//
// # Versions of transformers
//
// Versions of the transformers library differ in how apply_chat_template prepares a conversation,
// and in the template features that they support. Input.Transformers selects the version; see
// [Transformers]. Input.ContinueFinalMessage leaves the final message open, as
// continue_final_message does in Python.
//
// # Supported parts of Jinja
//
//   - Statements: if, for (filter, unpacking, else), set and set blocks (names, tuples, namespace
//     attributes), macro (defaults), filter, with, raw, generation, break, continue.
//   - Expressions: all operators except ** and % on text; conditional expressions, slices without
//     a step and [::-1], attributes and elements in Python's order, calls.
//   - Numbers: decimal notation without exponent. An int of more than 64 bits can only be printed
//     and compared.
//   - White space: trim_blocks and lstrip_blocks on, the signs - and +.
//   - Filters: capitalize count d default dictsort first float indent int items join last length
//     list lower map reject rejectattr replace safe select selectattr sort string title tojson trim
//     unique upper. tojson is Hugging Face's version: json.dumps with ensure_ascii off.
//   - Tests: boolean defined eq equalto false float ge greaterthan gt in integer iterable le
//     lessthan lt mapping ne none number sequence string true undefined, and the operators ==, !=,
//     >, >=, < and <=.
//   - Functions: range, namespace, raise_exception, strftime_now.
//   - Attributes of loop: first index index0 last length nextitem previtem revindex revindex0.
//   - Methods of str: capitalize endswith join lower lstrip replace rstrip split startswith strip
//     title upper. Methods of dict: get items keys values.
//   - Scopes: names resolve as in Jinja's compiler (scope.go). Loops, macros and blocks have their
//     own variables.
//
// The list contains the parts that public chat templates use, and a few other common parts. Parse
// refuses a template that names another filter, test, function, method, argument or tag. The error
// is an *Error that wraps ErrUnsupported and includes the name and the line (unsupported.go). If a
// name or a type becomes known only during a render, as in map(name), the render returns this
// error. Methods that change their object are refused, as in Jinja's immutable sandbox.
//
// # Remaining differences
//
// Each of the following is an error in this package. Except for values beyond a limit, each of them
// works in Python, and the error wraps ErrUnsupported:
//
//   - the parts of Jinja that are not in the list above; arithmetic beyond 64 bits; // and % of floats;
//     the order of lists; tuples as keys; a list times an int; == of two dict views, ranges or methods
//   - a second use of a generator that has been read only in part
//   - the attributes and methods of Markup, the result of the filter safe
//   - arguments that no public template uses, such as the argument base of int
//   - rare strftime directives, and directives that differ between C libraries
//   - text that is not Unicode, such as half of a surrogate pair in a template or in JSON. No
//     tokenizer accepts such text
//   - the text of a value other than a number, string, list, tuple or dict. In Python, such text
//     usually contains a memory address
//   - values beyond the limits of Options. Python's own limits on recursion differ. Here, macros
//     can be nested 200 levels deep by default, and values 900 levels deep.
//
// Printable characters, upper case and lower case follow Unicode 15.0, as in Python 3.12.
//
// # Limits
//
// A template is a program from the model's repository. Options limits the output, memory, steps and
// depth of a render. A render that exceeds a limit returns an *Error that wraps ErrLimit and
// includes the line. Each operation pays for its work and its memory in advance (cost.go). A render
// has no side effects, reads no files, and reads no clock except Input.Now.
//
// # Inputs from outside
//
// In Python, the output of a template can depend on more than its input. strftime_now reads the
// server's clock, and the text of some objects contains a memory address. In this package, the
// caller sets the time in Input.Now, and [Template.ReadsClock] reports whether the template uses
// the time. Text that would contain a memory address is an error.
package chat
