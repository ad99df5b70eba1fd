package auth

import "slices"

// A Proof says whether it is proven that the displayed content of a message comes from its author.
type Proof struct {
	Domain string // the author's domain; "" if nothing is proven
	// Signed reports that a signature is the only proof. Anyone who received such a message can
	// send it again, unchanged, to others.
	Signed bool
	// Missing says in a few words why nothing is proven although DMARC passes; "" otherwise.
	Missing string
}

// Proof returns the author's domain if DMARC passes for it, if all authors are of that domain, and
// if one check proves everything that readers are shown. That check is either SPF by a host of the
// domain itself, which then wrote the whole message, or one aligned signature that covers all
// displayed fields. ARC results do not count. Signatures of a part of the body (l=), with SHA-1, or
// with an RSA key below 1024 bits never pass.
//
// The DMARC tree walk may treat all names below a public suffix as one organisation, if the suffix
// has a record without psd=. So Proof also compares domains by the public suffix list.
func (v *Verdict) Proof() Proof {
	spf := v.SPF == Pass && v.SPFAligned
	switch {
	case v.DMARC != Pass || v.severalAuthors:
		return Proof{}
	case spf && v.SPFOwn && aligned(v.SPFDomain, v.FromDomain, false):
		return Proof{Domain: v.FromDomain}
	case slices.ContainsFunc(v.Signatures, func(s Signature) bool {
		return s.Aligned && s.Covers && aligned(s.Domain, v.FromDomain, false)
	}):
		return Proof{Domain: v.FromDomain, Signed: true}
	case v.Repeated != "":
		return Proof{Missing: "the field " + v.Repeated + " stands more than once"}
	case spf && aligned(v.SPFDomain, v.FromDomain, false):
		return Proof{Missing: "the sending host is not one of the author's domain alone"}
	}
	return Proof{Missing: "no signature covers every field that is shown"}
}
