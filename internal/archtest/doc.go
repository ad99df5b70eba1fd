// Package archtest has the tests that read the sources of the whole module: which package may
// import which, which rules have a single implementation, and which texts must exist for which
// codes. It has no other code.
package archtest
