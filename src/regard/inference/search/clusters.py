"""Clusters of texts: k-means on their vectors, described by central texts and characteristic words."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Generator, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from regard.errors import InputError
from regard.events import Event, Note, Progress, drain
from regard.inference.search.bm25 import words_of
from regard.inference.search.documents import IndexedText
from regard.inference.search.exact import blocks
from regard.inference.search.index import Index
from regard.inference.search.results import one_line, with_columns
from regard.render.result import Result, Table
from regard.wording import count_of

MAX_ITERATIONS = 100
TOLERANCE = 1e-4  # of the mean variance, by which centers may still move: as in scikit-learn
RESTARTS = 3
CENTRAL_TEXTS = 3
NUM_WORDS, MIN_WORDS = 8, 3  # of a cluster
MIN_RATIO = 1.5  # of a word's frequency in a cluster to that in the others
SAMPLE = 5000  # rows that choose the number of clusters
CHOICES = (2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50)


class ClusterMember(BaseModel):
    """A text with its cluster, counted from 0; `score` is its cosine similarity to the center. A row without a text has
    neither."""

    model_config = ConfigDict(frozen=True)

    id: str | int
    row: int
    cluster: int | None
    score: float | None
    text: str
    columns: dict[str, Any]


class Cluster(BaseModel):
    """`texts` are nearest to the center; `words` are frequent here and rare in the other clusters (c-TF-IDF)."""

    model_config = ConfigDict(frozen=True)

    cluster: int
    size: int
    words: list[str]
    texts: list[str]


class ClusterResult(Result):
    """Clusters, the largest first, and the cluster of every text, in the order of the rows. `inertia` is the sum of
    squared distances to the centers; `silhouette` is the mean simplified silhouette."""

    page_view: ClassVar[str | None] = "clusters"

    source: str
    model: str
    rows: int
    num_clusters: int
    inertia: float
    silhouette: float
    clusters: list[Cluster]
    members: list[ClusterMember]

    def to_text(self) -> str:
        clusters = count_of(self.num_clusters, "cluster")
        lines = [
            f"{count_of(self.rows, 'text')} in {clusters}: the words that distinguish each, and the texts nearest to "
            f"its center. Silhouette {self.silhouette:.2f} (1: clearly separated, 0: not)."
        ]
        for one in self.clusters:
            lines += ["", f"cluster {one.cluster}, {count_of(one.size, 'text')}: {', '.join(one.words)}"]
            lines += [f"  {one_line(text)}" for text in one.texts]
        return "\n".join(lines)

    def to_table(self) -> Table:
        rows = [([one.id, one.row, one.cluster, one.score, one.text], one.columns) for one in self.members]
        return with_columns(["id", "row", "cluster", "score", "text"], rows)


def find_clusters(
    index: Index, *, num_clusters: int | None = None, seed: int = 0, without_text: Sequence[IndexedText] = ()
) -> Generator[Event, None, ClusterResult]:
    """Divide the texts of an index into clusters; without a number, the one with the best silhouette is chosen.

    Rows `without_text` are listed among the members, without a cluster.
    """
    positions = index.positions()
    count = len(positions)
    if count < 2 or (num_clusters or 2) > count:
        raise InputError(f"{count_of(count, 'text')} cannot form {num_clusters or 2} clusters; expected more texts")
    vectors = torch.from_numpy(index.vectors(positions))
    if num_clusters is None:
        num_clusters = yield from _choose_number(vectors, seed)
        yield Note(message=f"chose {num_clusters} clusters by their silhouette; --num-clusters sets another number")
    fitted = yield from kmeans(vectors, num_clusters, seed=seed)
    order = np.argsort(-np.bincount(fitted.labels, minlength=num_clusters), kind="stable")
    numbers = np.empty_like(order)
    numbers[order] = np.arange(num_clusters)
    labels, centers = numbers[fitted.labels], fitted.centers[torch.from_numpy(order)]
    scores = (vectors * torch.nn.functional.normalize(centers, dim=1)[torch.from_numpy(labels)]).sum(1).numpy()
    members = []
    for (_, one), label, score in zip(index.documents(), labels.tolist(), scores.tolist(), strict=True):
        members.append(
            ClusterMember(id=one.id, row=one.row, cluster=label, score=score, text=one.text, columns=one.columns)
        )
    by_center = np.lexsort((-scores, labels))  # cluster by cluster, the most central texts first
    central_rows = np.split(by_center, np.searchsorted(labels[by_center], np.arange(1, num_clusters)))
    words = characteristic_words([[words_of(members[row].text) for row in rows] for rows in central_rows])
    clusters = []
    for number, central in enumerate(central_rows):
        texts = list(dict.fromkeys(members[row].text for row in central[: 10 * CENTRAL_TEXTS]))[:CENTRAL_TEXTS]
        clusters.append(Cluster(cluster=number, size=len(central), words=words[number], texts=texts))
    empty = [
        ClusterMember(id=one.id, row=one.row, cluster=None, score=None, text="", columns=one.columns)
        for one in without_text
    ]
    return ClusterResult(
        source=index.name,
        model=index.model_name,
        rows=count,
        num_clusters=num_clusters,
        inertia=fitted.inertia,
        silhouette=silhouette(vectors, centers, labels),
        clusters=clusters,
        members=sorted([*members, *empty], key=lambda one: one.row),
    )


class KMeans(NamedTuple):
    """A fitted k-means."""

    centers: Tensor  # (K, W)
    labels: NDArray[np.int64]
    inertia: float


def kmeans(vectors: Tensor, num_clusters: int, *, seed: int = 0) -> Generator[Event, None, KMeans]:
    """Lloyd's algorithm from several starts of k-means++; the one with the lowest inertia."""
    generator = torch.Generator().manual_seed(seed)
    best: KMeans | None = None
    for start in range(RESTARTS):
        centers = _plus_plus(vectors, num_clusters, generator)
        tolerance = TOLERANCE * float(vectors.var(0, correction=0).mean())
        for step in range(MAX_ITERATIONS):
            labels, distances = _assign(vectors, centers)
            moved = _means(vectors, labels, distances, num_clusters)
            shift = float((moved - centers).square().sum())
            centers = moved
            yield Progress(
                stage="clustering",
                done=start * MAX_ITERATIONS + step + 1,
                total=RESTARTS * MAX_ITERATIONS,
                unit="iterations",
            )
            if shift <= tolerance:
                break
        labels, distances = _assign(vectors, centers)
        fitted = KMeans(centers=centers, labels=labels.numpy(), inertia=float(distances.double().sum()))
        if best is None or fitted.inertia < best.inertia:
            best = fitted
    yield Progress(
        stage="clustering", done=RESTARTS * MAX_ITERATIONS, total=RESTARTS * MAX_ITERATIONS, unit="iterations"
    )
    assert best is not None
    return best


def _plus_plus(vectors: Tensor, num_clusters: int, generator: torch.Generator) -> Tensor:
    """k-means++ (Arthur and Vassilvitskii, 2007): centers far from each other. Of a few candidates, each step takes the
    one that reduces the distances most, as scikit-learn does."""
    trials = 2 + int(math.log(num_clusters))
    first = int(torch.randint(len(vectors), (), generator=generator))
    centers = [vectors[first]]
    nearest = _distances(vectors, centers[0][None])[:, 0]
    while len(centers) < num_clusters:
        # torch.multinomial takes at most 2^24 categories, so rows are drawn by bisection.
        cumulative = nearest.double().cumsum(0)
        drawn = torch.rand(trials, generator=generator, dtype=torch.float64) * cumulative[-1]
        candidates = torch.searchsorted(cumulative, drawn).clamp(max=len(vectors) - 1)
        reduced = torch.minimum(_distances(vectors, vectors[candidates]), nearest[:, None])
        chosen = int(reduced.double().sum(0).argmin())
        nearest = reduced[:, chosen].contiguous()
        centers.append(vectors[candidates[chosen]])
    return torch.stack(centers)


def _distances(vectors: Tensor, centers: Tensor) -> Tensor:
    """Squared distances (N, K)."""
    parts = [vectors[block] @ centers.T for block in blocks(len(vectors))]
    squares = vectors.square().sum(1)[:, None] + centers.square().sum(1)
    return (squares - 2 * torch.cat(parts)).clamp(min=0)


def _assign(vectors: Tensor, centers: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest center of each row, and the squared distance to it."""
    found = [_distances(vectors[block], centers).min(1) for block in blocks(len(vectors))]
    return torch.cat([one.indices for one in found]), torch.cat([one.values for one in found])


def _means(vectors: Tensor, labels: Tensor, distances: Tensor, num_clusters: int) -> Tensor:
    """The mean of each cluster; one without rows starts again at the row that is farthest from its center."""
    sums = torch.zeros(num_clusters, vectors.shape[1]).index_add_(0, labels, vectors)
    counts = torch.bincount(labels, minlength=num_clusters)
    centers = sums / counts.clamp(min=1)[:, None]
    empty = (counts == 0).nonzero()[:, 0]
    centers[empty] = vectors[distances.topk(len(empty)).indices]
    return centers


def _choose_number(vectors: Tensor, seed: int) -> Generator[Event, None, int]:
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(vectors), generator=generator)[:SAMPLE].sort().values
    sample = vectors[chosen]
    numbers = [number for number in CHOICES if number <= max(2, len(sample) // 3)]
    best, best_score = 2, -2.0
    for done, number in enumerate(numbers, 1):
        fitted = drain(kmeans(sample, number, seed=seed))
        score = silhouette(sample, fitted.centers, fitted.labels)
        if score > best_score:
            best, best_score = number, score
        yield Progress(stage="choosing the number of clusters", done=done, total=len(numbers), unit="numbers")
    return best


def silhouette(vectors: Tensor, centers: Tensor, labels: NDArray[np.int64]) -> float:
    """The simplified silhouette (Hruschka et al., 2004): (b - a) / max(a, b) with the distances a to the row's own
    center and b to the nearest other one, averaged over the rows."""
    total = 0.0
    own = torch.from_numpy(labels)
    for block in blocks(len(vectors)):
        distances = _distances(vectors[block], centers).sqrt()
        a = distances.gather(1, own[block, None])[:, 0]
        b = distances.scatter(1, own[block, None], torch.inf).min(1).values
        total += float(((b - a) / torch.maximum(a, b).clamp(min=1e-12)).double().sum())
    return total / len(vectors)


def characteristic_words(clusters: Sequence[Sequence[Sequence[str]]], num_words: int = NUM_WORDS) -> list[list[str]]:
    """Words by class-based TF-IDF (Grootendorst, 2022): sqrt(tf(word, class)) * ln(1 + mean length / tf(word)).

    `clusters` are the words of the texts of each cluster, the most central text first; words of equal weight keep that
    order. The root lowers words that are frequent everywhere. Stop words are left out, and words that are hardly more
    frequent here than in the other clusters. Words of a single text are used if there are not enough others.
    """
    counts = [Counter(word for text in cluster for word in text) for cluster in clusters]
    frequency = sum(counts, Counter[str]())
    mean = frequency.total() / max(len(counts), 1)
    found = []
    for one, cluster in zip(counts, clusters, strict=True):
        elsewhere = MIN_RATIO / max(frequency.total() - one.total(), 1)
        weights = {
            word: math.sqrt(count / one.total()) * math.log(1 + mean / frequency[word])
            for word, count in one.items()
            if count / one.total() > elsewhere * (frequency[word] - count)
            and not (word.isdigit() or (len(word) == 1 and word.isascii()) or word in STOP_WORDS)
        }
        texts = Counter(word for text in cluster for word in set(text))
        words = sorted(weights, key=lambda word: -weights[word])
        shared = [word for word in words if texts[word] > 1][:num_words]
        found.append(shared if len(shared) >= MIN_WORDS else sorted(words, key=lambda w: texts[w] < 2)[:MIN_WORDS])
    return found


# Words that name no cluster in English, German, French and Spanish, as `words_of` spells them ("don" of "don't"). Other
# languages rely on the frequencies of words.
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
