// Package reward scores finished rollouts. Each scorer is a collector.Scorer:
//
//	None      no reward at all
//	Exact     the output is the answer
//	Contains  the output holds the answer
//	Regex     the output matches a pattern; its first group is the answer
//	Number    the last number of the output is the answer's
//	JSON      a value inside the output's JSON is the answer
//	Command   a program of the user's says so
//
// All but None and Command reward 1 or 0. The output is the text of the last
// assistant message. A scorer that cannot judge returns an error: the reward is
// then null, which is not 0, and the sample is kept. Where the task is why, as one without
// an answer, the error wraps collector.ErrNoAnswer, and Check says so before the run; any
// other error is a failure of the scorer.
package reward
