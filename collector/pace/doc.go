// Package pace decides when the next group of a run can begin. It is for trainers that take groups
// during the run. The package keeps such a trainer from getting too many groups, or groups that are
// too old. It holds groups back but does not discard any groups. Discarding groups would affect
// long groups first and bias the data toward short groups.
//
// There are three optional rules and two switches:
//
//	MaxAhead     limits the groups that have begun and are not yet acknowledged, filtered or failed
//	MaxLag       no group begins that would be more than K versions old when it is taken
//	UntilGroups  no group begins that is not needed to have N informative groups
//	Pause        nothing begins until Resume
//	HoldUnread   nothing begins while the reader has too many unread events
//
// Groups begin in the caller's order. A [Pacer] holds the next group back, and all other groups
// wait behind it. A group that has begun is never held because of its age, but the switches also
// hold its remaining samples.
//
// # Lag
//
// The lag of a group is the number of versions that its policy is behind when the group becomes
// whole. The lag is the current version at that time minus the version of the group's oldest token.
// If the version of any token is not proven, the version at the time the group began is used
// instead. No token is older than that version, so the lag is then an upper bound. If an earlier
// process began such a group, its lag is unknown.
//
// The expected lag of a new group follows from the groups ahead of it. Suppose that a trainer takes
// B groups per version, and that N groups are ahead of the new group. N counts the groups that the
// trainer has taken since it set the version, the groups that wait for the trainer, and the groups
// in progress. So the trainer sets N/B versions, rounded down, before it takes the new group. The
// group can begin if this number of versions is at most K, the value of MaxLag:
//
//	K = 1, B = 4    taken   wait   in progress
//	N = 7             ● ●    ● ●      ● ● ●       ○ begins: one version is set before it
//	N = 8             ● ●    ● ●     ● ● ● ●      ○ is held: two would be set before it
//
// In the long run, N/B equals D/T by Little's law (Operations Research 9 (1961), 383). Here, D is
// the mean time that a group takes, and T is the mean time that a version lasts. But D/T, unlike
// N/B, is wrong just after a batch begins and while a trainer waits. If only a share p of the
// groups is informative, each group in progress counts as p groups.
//
// B is the maximum over the last eight versions, not the mean. With the mean, a trainer whose
// batches differ in size could wait for groups while these groups wait for a new version. B is
// unknown until two versions have been set and a group has been acknowledged between them. While B
// is unknown, no group is held for its age.
//
// A trainer can still need more groups for a version than it ever took before. So if no group is in
// progress and no version is set within T, the Pacer waits for a further D. If the version is still
// not set, about B more groups can begin. This repeats until the version is set.
//
// # How long a group takes
//
// D is not the mean time of the groups that have arrived, because short groups arrive first. D is a
// sum divided by the number of arrivals. The sum adds up how long each group, finished or not, has
// been in progress. This is the usual estimate of a mean from censored lifetimes (exposure divided
// by events). If as many groups begin as end, D equals the mean for any distribution, by Little's
// law. After only a few arrivals, D can be far too high. So D never exceeds the total time in which
// at least one group was in progress.
//
// Old groups count less: after W more groups, a group has the weight 1/e. W is 128, or four times
// the number of groups in progress if that is more. With a smaller W, the long groups of a batch
// would outweigh its short groups. Groups that failed, or that an earlier process began, do not
// count.
//
// T is a mean over about eight versions. Neither D nor T includes paused time.
//
// # Enough
//
// An informative group is a group that is given to the trainer. Let p be the share of informative
// groups among the finished groups, and N the value of UntilGroups. A group begins only while the
// number of informative groups plus p times the number of groups in progress is less than N. The
// estimate of p starts at 1, with the weight of one group. So at first, N groups begin and not N/p.
package pace
