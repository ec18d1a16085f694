// Package pattern compiles the split patterns of tokenizers: a regular expression
// becomes a table, and a text is read by one look-up per character.
//
// # What a pattern may be
//
//	a|b  ab  ( )  (?: )            alternatives, one after the other, groups
//	(?i: )                         ASCII letters without regard to case
//	[...] [^...] a-b && [...]      classes, ranges, intersections, classes inside
//	\p{L} \P{Lu} \p{^N} \p{Han}    general categories, and one script
//	\s \S \d \D .                  white space, decimal digits, all but \n
//	\r \n \t \f \v \x41 \x{1F600} \u00e9, and \ before a symbol
//	? * + {m} {m,} {m,n}           as often as possible
//	?+ *+ ++                       of one character: what is taken stays taken
//	(?=x) (?!x) $ \z               lookahead at one character, or at the end
//
// The meaning is that of Oniguruma with the syntax of Ruby, as the library
// tokenizers uses it: the first alternative that leads to a match wins, {1,3}+ is
// {1,3} repeated, $ also matches before \n, (?i:s) matches U+017F. Characters are
// those of Unicode 16.0. Everything else is refused with a [SyntaxError] that
// names the construct, and so is what means something else there than it seems to:
// \w, or (?i:ss), which matches ß.
//
// # How it is compiled
//
//	pattern ─► tree ─► steps of a backtracking matcher ─► table of states
//
// Characters that no class of the pattern tells apart are one class. A state is
// the list of steps that a backtracking matcher could be at, best first, cut where
// one of them is a match: so the table finds the match that such a matcher would
// find. Lookahead is decided by the next character, which the table has in hand.
//
// A table may read further than the match it finds. A pattern for which that could
// happen again and again over the same text is refused, so that splitting takes
// time proportional to the length of the text.
package pattern
