package spftest

// A Case is the TXT records that Domain has, and how they are merged.
type Case struct {
	Old     []string
	Want    string // what stands after our terms in the record of spf.Merge
	Lookups int    // of that record, with one for our mx
}

// Cases are what domains have before their mail comes here.
var Cases = []Case{
	{nil, "~all", 1},
	{[]string{"no policy", "v=spf10 x"}, "~all", 1},
	{[]string{"v=spf1 -all"}, "-all", 1},
	{[]string{"v=spf1"}, "~all", 1},
	{[]string{"v=spf1 a"}, "a ~all", 2},
	{[]string{"v=spf1 mx -all"}, "a:mx1.old.test a:mx2.old.test -all", 3},
	{[]string{"v=spf1 a mx ~all"}, "a a:mx1.old.test a:mx2.old.test ~all", 4},
	{[]string{"v=spf1 ?mx ~all"}, "?a:mx1.old.test ?a:mx2.old.test ~all", 3},
	{[]string{"v=spf1 mx/28 -all"}, "a:mx1.old.test/28 a:mx2.old.test/28 -all", 3},
	{[]string{"v=spf1 mx:Example.com. -all"}, "a:mx1.old.test a:mx2.old.test -all", 3},
	{[]string{"v=spf1 mx:%{d} -all"}, "a:mx1.old.test a:mx2.old.test -all", 3},
	{[]string{"v=spf1 mx:other.test -all"}, "mx:other.test -all", 2},
	{[]string{"v=spf1 include:_spf.large.test ~all"}, "include:_spf.large.test ~all", 5},
	{[]string{"v=spf1 include:spf.offices.test -all"}, "include:spf.offices.test -all", 2},
	{[]string{"v=spf1 include:_spf.large.test include:spf.offices.test mx ?all"}, "include:_spf.large.test include:spf.offices.test a:mx1.old.test a:mx2.old.test ?all", 8},
	{[]string{"v=spf1 ip4:203.0.113.5 ip6:2001:db8:5::/64 -all"}, "ip4:203.0.113.5 ip6:2001:db8:5::/64 -all", 1},
	{[]string{"v=spf1 ip4:192.0.2.1 ip4:192.0.2.1/32 ip6:2001:DB8::1 ~all"}, "~all", 1},
	{[]string{"v=spf1 a a include:spf.offices.test include:SPF.offices.test -all"}, "a include:spf.offices.test -all", 3},
	{[]string{"v=spf1 -ip4:203.0.113.66 include:spf.offices.test ~all"}, "-ip4:203.0.113.66 include:spf.offices.test ~all", 2},
	{[]string{"V=SPF1  MX A:Out.Sender.test -ALL"}, "a:mx1.old.test a:mx2.old.test a:Out.Sender.test -all", 4},
	{[]string{"v=spf1 +all"}, "all", 1},
	{[]string{"v=spf1 a -all ip4:203.0.113.5"}, "a -all", 2},
	{[]string{"v=spf1 redirect=_spf.hoster.test"}, "redirect=_spf.hoster.test", 3},
	{[]string{"v=spf1 redirect=_spf.hoster.test mx"}, "a:mx1.old.test a:mx2.old.test redirect=_spf.hoster.test", 5},
	{[]string{"v=spf1 redirect=_spf.hoster.test a -all"}, "a -all", 2},
	{[]string{"v=spf1 exists:%{i}._spf.macro.test -all"}, "exists:%{i}._spf.macro.test -all", 2},
	{[]string{"v=spf1 include:%{d}._spf.macro.test -all"}, "include:%{d}._spf.macro.test -all", 3},
	{[]string{"v=spf1 include:%{o}._spf.macro.test ~all"}, "include:%{o}._spf.macro.test ~all", 3},
	{[]string{"v=spf1 ptr -all"}, "ptr -all", 2},
	{[]string{"v=spf1 ptr:ptr.test ?all"}, "ptr:ptr.test ?all", 2},
	{[]string{"v=spf1 a -all exp=why.example.com"}, "a exp=why.example.com -all", 2},
	{[]string{"v=spf1 moo=x a moo=y -all"}, "moo=x a -all", 2},
	{[]string{"v=spf1 ip4:203.0.113 a bogus -all"}, "a -all", 2},
	{[]string{"v=spf1 include:none.test a -all"}, "include:none.test a -all", 3},
	{[]string{"v=spf1 include:two.test -all"}, "include:two.test -all", 2},
	{[]string{"owner=1", "v=spf1 a -all"}, "a -all", 2},
	{[]string{"v=spf1 include:spf.offices.test -all", "v=spf1 ip4:203.0.113.5 ~all"}, "include:spf.offices.test ip4:203.0.113.5 ~all", 2},
	{[]string{"v=spf1 ip4:203.0.113.5 ?all", "v=spf1 a -all"}, "ip4:203.0.113.5 a ?all", 2},
	{[]string{"v=spf1 redirect=_spf.hoster.test", "v=spf1 mx -all"}, "include:_spf.hoster.test a:mx1.old.test a:mx2.old.test -all", 5},
	{[]string{"v=spf1 redirect=_spf.hoster.test", "v=spf1 redirect=_spf.large.test"}, "include:_spf.hoster.test include:_spf.large.test ~all", 7},
	{ // as many lookups as receivers make
		[]string{"v=spf1 include:_spf.large.test include:spf.offices.test a exists:%{i}._spf.macro.test a:out.sender.test a:mx1.old.test -all"},
		"include:_spf.large.test include:spf.offices.test a exists:%{i}._spf.macro.test a:out.sender.test a:mx1.old.test -all", 10,
	},
}
