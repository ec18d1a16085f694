// Package pattern compiles the split patterns of tokenizers. It compiles a regular expression to a
// table, and matching takes one table lookup per character.
//
// # Syntax
//
//	a|b  ab  ( )  (?: )            alternatives, sequences, groups
//	(?i: )                         ASCII letters in either case
//	[...] [^...] a-b && [...]      classes, ranges, intersections, nested classes
//	\p{L} \P{Lu} \p{^N} \p{Han}    general categories, and one script
//	\s \S \d \D .                  white space, decimal digits, all but \n
//	\r \n \t \f \v \x41 \x{1F600} \u00e9, and \ before a symbol
//	? * + {m} {m,} {m,n}           greedy
//	?+ *+ ++                       possessive, for one character
//	(?=x) (?!x) $ \z               lookahead at one character, or at the end
//
// The semantics are Oniguruma's with Ruby syntax, as in the tokenizers library: the first
// alternative that leads to a match wins, {1,3}+ is {1,3} repeated, $ also matches before \n, and
// (?i:s) matches U+017F. Characters follow Unicode 16.0. Everything else is rejected with a
// [SyntaxError] that names the construct, even if Oniguruma accepts it with an unexpected meaning:
// \w, or (?i:ss), which matches ß.
//
// # Compilation
//
//	pattern ─► tree ─► steps of a backtracking matcher ─► table of states
//
// Characters that the pattern does not distinguish form one class. A state is the list of steps
// that a backtracking matcher could be at, best first, up to the first step that is a match. So the
// table finds the same match as a backtracking matcher. A lookahead depends only on the next
// character, and the class of the next character is the index of the table lookup.
//
// The matcher can read past the end of the match that it finds. A pattern is rejected if the
// matcher could read the same text repeatedly in this way. So splitting takes linear time.
package pattern
