// Package archtest has tests that check the sources of the whole module: which packages may import
// which, which rules have only one implementation, and which texts must exist for which codes. It
// has no other code.
package archtest
