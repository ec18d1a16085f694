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
// Patterns have the semantics of Oniguruma with Ruby syntax, as in the tokenizers library. For
// example, the first alternative that leads to a match wins, {1,3}+ repeats {1,3}, $ also matches
// before \n, and (?i:s) matches U+017F. Characters are classified as in Unicode 16.0. Every other
// construct is rejected with a [SyntaxError] that names the construct. Constructs with a surprising
// meaning in Oniguruma are also rejected: for example \w, and (?i:ss), because it matches ß.
//
// # Compilation
//
//	pattern ─► tree ─► steps of a backtracking matcher ─► table of states
//
// Characters that the pattern does not distinguish form one class. A state is a list of the steps
// that a backtracking matcher could have reached, in the order in which it would try them. The list
// ends at the first step that is a match. Therefore the table finds the same match as a
// backtracking matcher. The table can also evaluate a lookahead, because a lookahead depends only
// on the next character, and the table is indexed by the class of that character.
//
// The matcher can read past the end of the match that it finds. A pattern is rejected if the
// matcher could keep rereading the same text in this way. Therefore splitting takes linear time.
package pattern
