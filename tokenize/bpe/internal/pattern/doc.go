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
// Patterns have the semantics of Oniguruma with Ruby syntax, as in the tokenizers library. The
// first alternative that leads to a match wins, {1,3}+ is {1,3} repeated, $ also matches before \n,
// and (?i:s) matches U+017F. Characters are classified as in Unicode 16.0. Every other construct is
// rejected with a [SyntaxError] that names the construct. This includes constructs that Oniguruma
// accepts with an unexpected meaning, such as \w, or (?i:ss), which matches ß.
//
// # Compilation
//
//	pattern ─► tree ─► steps of a backtracking matcher ─► table of states
//
// Characters that the pattern does not distinguish form one class. A state is the list of steps at
// which a backtracking matcher could be, in the order in which it would try them. The list ends at
// the first step that is a match. Therefore the table finds the same match as a backtracking
// matcher. A lookahead depends only on the next character, and each table lookup uses the class of
// the next character as its index.
//
// The matcher can read past the end of the match that it finds. If it could read the same text
// repeatedly in this way, the pattern is rejected. Therefore splitting takes linear time.
package pattern
