import{j as o}from"./part-a98df2276e650f7d.js";var e=o(null);export{e as a};
