use strict; use warnings; use Sisimai; use JSON;
# For each file named on standard input one line: a list of what Sisimai finds about each recipient.
my $json = JSON->new->canonical->ascii;
$| = 1;
while (my $file = <STDIN>) {
    chomp $file;
    my $found = eval { local $SIG{ALRM} = sub { die "slow" }; alarm 20; my $r = Sisimai->make($file, delivered => 1); alarm 0; $r };
    my @out = map { { Recipient => $_->recipient->address, Action => $_->action, Status => $_->deliverystatus, Reason => $_->reason } } @{ $found || [] };
    print $json->encode(\@out), "\n";
}
