// Package pattern compiles the split patterns of tokenizers. A regular expression becomes a table,
// and matching needs one lookup per character.
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
// Characters that no class of the pattern distinguishes form one class. A state is the list of
// steps that a backtracking matcher could be at, best first, up to the first step that is a match.
// So the table finds the same match as such a matcher. The next character decides a lookahead, and
// it is the index of the table lookup.
//
// A table can read past the end of the match that it finds. If that could happen repeatedly over
// the same text, the pattern is rejected, so splitting takes linear time.
package pattern
