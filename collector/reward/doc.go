// Package reward scores finished rollouts. These scorers are a collector.Scorer:
//
//	Exact     the output is the answer
//	Contains  the output contains the answer
//	Regex     the output matches a pattern, and its first group is the answer
//	Number    the last number in the output equals the answer
//	JSON      a value inside the output's JSON equals the answer
//	Command   an external program decides
//	Python    a Python function decides
//
// PythonGroup is a [GroupScorer]: a Python function that scores all samples of a group together.
// [Components] adds up the rewards of several scorers.
//
// Exact, Contains, Regex, Number and JSON return 1 or 0. The output is the text of the model's last message. If
// collector.Config has a Splitter, the output does not include the reasoning. If a scorer cannot
// score a sample, it returns an error. The reward is then null, not 0, and the sample is kept. If
// the task has no answer, the error wraps collector.ErrNoAnswer. Check returns the same error
// before the run. Any other error is a failure of the scorer. [Try] detects such failures before a
// run begins.
//
// # Numbers
//
// Number parses numbers in these forms, and compares them as rational numbers of any size:
//
//	72   -3   +5   1,234.5   .5   5.   1e3   1.2E-7    decimal numbers
//	8,000   8'000   8_000   8{,}000   8\,000           groups of three digits; also with a
//	                                                   no-break, thin or figure space
//	1/2   \frac{1}{2}   \dfrac12   ½                   fractions
//	2 1/2   2\frac{1}{2}   2½                          mixed numbers: the fraction is below 1
//	3×10^8   3 \times 10^{-4}   10⁶   2^10             powers
//
// The minus signs are -, U+2212, U+FE63, U+FF0D, and the hyphens U+2010 and U+2011. If one of these
// characters follows a letter, a digit or a percent sign, it is a hyphen: the last number in 10-20
// is 20. The dashes U+2012 and U+2013 are minus signs too, unless a number or a letter precedes
// them: the last number in 3–5 is 5. Number ignores currency and percent signs: 50% is 50. A comma
// is never a decimal comma: 3,14 is two numbers, 3 and 14. Full-width and mathematical digits count
// as digits.
//
// Number cannot determine the exact value of some numbers: 1.2.3, 1/0, 1/2/3, \sqrt{2}, 2\pi,
// 0.\overline{3}, 0x1F, 8 000 with an ASCII space, and numbers with more than 4,096 digits or an
// exponent beyond 4,096. If the last number in an output is such a number, the reward is 0.
package reward
