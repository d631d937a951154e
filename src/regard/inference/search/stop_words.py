"""Words that name no cluster in English, German, French and Spanish, as `bm25.words_of` spells them ("don" of "don't").

Other languages rely on the frequencies of words.
"""

from __future__ import annotations

_ENGLISH = """
about above after again against ain all almost also although always am among an and another any anybody anyone
anything are aren around as at away back be became because become been before behind being below between both but by
came can cannot come could couldn did didn do does doesn doing don done down during each either else enough even ever
every everybody everyone everything few for from further gave get gets getting give given go goes going gone got had
hadn has hasn have haven having he hence her here hers herself him himself his how however if in indeed instead into
is isn it its itself just keep kept less let like ll lot made make makes making many may maybe me might mine more most
much must mustn my myself neither never no nobody none nor not nothing now of off often on once one only onto or other
others otherwise our ours ourselves out over own per perhaps put quite rather re really said same say says see seem
seems several shall she should shouldn since so some somebody someone something sometimes still such take than that
the their theirs them themselves then there therefore these they thing things this those though through thus to
together too took toward towards two under unless until up upon us use used uses using ve very via want was wasn we
well went were weren what whatever when whenever where whether which while who whole whom whose why will with within
without won would wouldn yet you your yours yourself yourselves
"""
_GERMAN = """
aber alle allem allen aller alles als also am an andere anderen auch auf aus bei beim bin bis bist da dabei dadurch
damit dann daran darauf das dass dein deine dem den denen denn der deren des dessen dich die dies diese diesem diesen
dieser dieses dir doch dort du durch ein eine einem einen einer eines einige er es etwas euch euer für gegen gibt ganz
hab habe haben hast hat hatte hatten hier hin hinter ich ihm ihn ihnen ihr ihre ihrem ihren ihrer im immer in ins ist
ja jede jedem jeden jeder jedes jetzt kann kein keine keinem keinen keiner können könnte machen man mehr mein meine
meinem meinen meiner mich mir mit muss müssen nach nicht nichts noch nun nur ob oder ohne schon sehr sein seine seinem
seinen seiner seit sich sie sind so soll sollte sondern sonst über um und uns unser unsere unter viel vom von vor war
waren was weil weiter welche welchem welchen welcher wenn wer werde werden wie wieder will wir wird wo wollen wurde
wurden während zu zum zur zwar zwischen
"""
_FRENCH = """
ai aie ainsi après as au aucun aucune aussi autre autres aux avant avec avez avoir avons ayant car ce ceci cela celle
celles celui ces cet cette ceux chaque chez comme comment dans de depuis des donc dont du elle elles en encore entre
es est et étaient était étant été êtes être eu eux fait faire fois font hors ici il ils je jusqu la là le les leur
leurs lors lorsque lui ma mais me même mes mi moi moins mon ne ni nos notre nous on ont ou où par parce pas pendant
peu peut plus pour pourquoi qu quand que quel quelle quelles quels qui quoi sa sans se sera ses si son sont sous suis
sur ta te tes toi ton tous tout toute toutes très trop tu un une va vers voici voilà vos votre vous
"""
_SPANISH = """
al algo algunas algunos ante antes aquel aquella aunque aún cada casi como con contra cosa cual cuando de del desde
donde dos durante él el ella ellas ellos en entre era eran eres es esa esas ese eso esos esta está estaba estamos
están estas este esto estos estoy fue fueron ha había hace hacer han has hasta hay he hemos la las le les lo los más
me menos mi mis mientras mucho muchos muy nada ni no nos nosotros nuestra nuestro otra otras otro otros para pero poco
por porque pues que qué quien se sea según ser si sí sido sin sobre solo son soy su sus también tan tanto te tener
tengo ti tiene tienen toda todas todo todos tu tus un una unas uno unos ya yo
"""
STOP_WORDS = frozenset(f"{_ENGLISH} {_GERMAN} {_FRENCH} {_SPANISH}".split())
